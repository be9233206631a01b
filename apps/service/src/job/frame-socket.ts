/** A connected message socket, as sessions need it. Made by websocket.ts. */
export interface FrameSocket {
  /** The next frame, or null when the client is gone. A text frame is null bytes: a violation. */
  next(): Promise<Frame | null>;
  /** Resolves when the frame is handed to the kernel; rejects when the client is gone. */
  send(frame: Uint8Array): Promise<void>;
  /** The same for one text message. */
  sendText(text: string): Promise<void>;
  close(code: number, reason: string): void;
  /** Resolves when the socket is over, for whatever cause. */
  readonly closed: Promise<void>;
}

export type Frame = { readonly isBinary: true; readonly bytes: Uint8Array } | { readonly isBinary: false };

/** What we close with, beside 1000: RFC 6455, section 7.4.1. */
export const CLOSE_CODES = {
  done: 1000,
  serviceStops: 1001,
  protocolError: 1002,
  textFrame: 1003,
  tooLarge: 1009,
  failed: 1011,
} as const;
