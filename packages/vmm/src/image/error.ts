import { Failure } from "@capsem/base";

/** Every way in which an image can fail to be there. */
export const IMAGE_FAILURES = {
  image_missing: "no complete image of that digest in the cache",
  image_corrupt: "an image whose files are not those of its manifest",
  image_tool_missing: "a program of the host that the build needs is not installed",
  image_host_unsupported: "a host on which the image cannot be built",
  image_no_space: "too little free space",
  image_no_network: "the package sources did not answer",
  image_build_failed: "a build step ended with an error",
} as const;

export type ImageFailureKind = keyof typeof IMAGE_FAILURES;

export function imageFailure(
  kind: ImageFailureKind,
  message: string,
  options: { cause?: unknown; detail?: string } = {},
): Failure<ImageFailureKind> {
  return new Failure(kind, message, { ...options, retryable: kind === "image_no_network" });
}
