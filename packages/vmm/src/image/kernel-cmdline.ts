/**
 * The guest kernel's command line. It is one constant because a golden is only valid for the command line it
 * was booted with; the hypervisor driver puts it into `-append` and into the golden's key.
 *
 * Why each word is there:
 * - `console=ttyS0`, `quiet`, `loglevel=3`: a serial console that carries failures only. Every character
 *   printed costs an emulated port access.
 * - `panic=-1`, `reboot=t`: a panic ends the hypervisor at once instead of waiting for a person.
 * - `no_timer_check`, `nosoftlockup`: both misjudge an emulated CPU on a busy host.
 * - `tsc=nowatchdog`: an emulated time stamp counter runs with the host's clock; a busy host makes the watchdog
 *   distrust it and fall back to a timer whose every reading costs microseconds.
 * - `cryptomgr.notests`, `audit=0`, `apparmor=0`, `rcupdate.rcu_expedited=1`: boot time under emulation. No
 *   program in the guest uses audit or AppArmor: the border is the VM.
 * - `lsm=…`: with AppArmor away Debian's kernel takes SELinux in its place, and Tomoyo beside it. Both have no policy here,
 *   so that they refuse nothing, and each system call asks them.
 *
 * CPU mitigations and address randomisation stay on: the workload and the guest agent share this kernel.
 */
export const KERNEL_CMDLINE: string = [
  "console=ttyS0",
  "quiet",
  "loglevel=3",
  "panic=-1",
  "reboot=t",
  "no_timer_check",
  "nosoftlockup",
  "tsc=nowatchdog",
  "cryptomgr.notests",
  "rcupdate.rcu_expedited=1",
  "audit=0",
  "apparmor=0",
  "lsm=landlock,lockdown,yama",
].join(" ");
