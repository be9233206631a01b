/** Upper bounds of what crosses into the addon. The C++ side has the same numbers where memory depends on them. */

/** Descriptors in one message. No exchange of ours passes more than five; `passedMax` in descriptors.cc. */
export const PASSED_DESCRIPTORS_MAX = 16;

/** Bytes of one message that carries descriptors: it is a label for them, never bulk data. */
export const PASSED_PAYLOAD_BYTES_MAX = 65_536;

/** How long a send or receive may block the thread on a peer that does not move. */
export const PASS_TIMEOUT_MS_MAX = 10_000;
export const PASS_TIMEOUT_MS_DEFAULT = 1_000;

/** The kernel's own bound on the name of a memfd (NAME_MAX less its prefix "memfd:"). */
export const MEMFD_NAME_BYTES_MAX = 249;

/** A memfd holds at most the memory of one VM; 64 GiB is far above the largest. */
export const MEMFD_BYTES_MAX = 64 * 1024 ** 3;

/** No process of ours that limits the size of its files writes one as large as a VM's memory. */
export const FILE_BYTES_MAX = 64 * 1024 ** 3;

/** The kernel's own bound on a seccomp program (BPF_MAXINSNS), each instruction eight bytes. */
export const FILTER_INSTRUCTIONS_MAX = 4096;
export const FILTER_INSTRUCTION_BYTES = 8;
