import { encodeCpio } from "./image/cpio.ts";

/** What a guest prints when it got as far as running a program. The kernel prints nothing like it. */
export const PROBE_TOKEN = "capsem-probe-ok";

const LOAD_ADDRESS = 0x400000;
const HEADER_BYTES = 64 + 56;

/**
 * The smallest guest: an initial file system whose one program prints the token and reboots, which ends the
 * hypervisor. It is made here, so that the probe depends on no file but the kernel.
 */
export function encodeProbeInitramfs(): Uint8Array {
  return encodeCpio([
    { kind: "directory", path: "dev", mode: 0o755 },
    { kind: "device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
    { kind: "file", path: "init", mode: 0o755, bytes: encodeProbeProgram() },
  ]);
}

/** A static ELF64 program for x86-64 with one segment: headers, code, text. */
function encodeProbeProgram(): Buffer {
  const text = Buffer.from(`\n${PROBE_TOKEN}\n`);
  const code = encodeCode(text.length);
  const size = HEADER_BYTES + code.length + text.length;
  const header = Buffer.alloc(HEADER_BYTES);
  header.write("\x7fELF\x02\x01\x01", "latin1");
  header.writeUInt16LE(2, 16); // executable
  header.writeUInt16LE(62, 18); // x86-64
  header.writeUInt32LE(1, 20);
  header.writeBigUInt64LE(BigInt(LOAD_ADDRESS + HEADER_BYTES), 24); // entry
  header.writeBigUInt64LE(64n, 32); // program headers
  header.writeUInt16LE(64, 52);
  header.writeUInt16LE(56, 54);
  header.writeUInt16LE(1, 56);
  header.writeUInt32LE(1, 64); // loaded
  header.writeUInt32LE(5, 68); // readable, executable
  header.writeBigUInt64LE(BigInt(LOAD_ADDRESS), 80);
  header.writeBigUInt64LE(BigInt(LOAD_ADDRESS), 88);
  header.writeBigUInt64LE(BigInt(size), 96);
  header.writeBigUInt64LE(BigInt(size), 104);
  header.writeBigUInt64LE(0x1000n, 112);
  return Buffer.concat([header, code, text]);
}

function encodeCode(textLength: number): Buffer {
  const number = (value: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value >>> 0);
    return [...bytes];
  };
  const afterText = [
    ...[0xba, ...number(textLength)], // mov edx, length
    ...[0x0f, 0x05], // syscall: write(1, text, length)
    ...[0xb8, ...number(169)], // mov eax, reboot
    ...[0xbf, ...number(0xfee1dead)],
    ...[0xbe, ...number(0x28121969)],
    ...[0xba, ...number(0x01234567)], // restart
    ...[0x0f, 0x05],
    ...[0xeb, 0xfe], // never reached: jump to itself
  ];
  return Buffer.from([
    ...[0xb8, ...number(1)], // mov eax, write
    ...[0xbf, ...number(1)], // mov edi, standard output
    ...[0x48, 0x8d, 0x35, ...number(afterText.length)], // lea rsi, [text]
    ...afterText,
  ]);
}
