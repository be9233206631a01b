/**
 * V8 compiles a function anew, for speed, when it has run so many bytes of its code: here four times the usual number.
 * A service does many different things a few times each, and compiled most of what it did for runs that never came: as
 * much processor time as the things themselves, on the two or four cores that its VMs need too. What is really run often
 * gets there in the same second.
 */
export const COMPILE_FLAG = "--interrupt-budget=270336";
