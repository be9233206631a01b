import { Failure } from "@capsem/base";
import type { GuestPlaces } from "./powers.ts";

const DEFAULT_PLACES: GuestPlaces = {
  control: "/dev/virtio-ports/capsem.control",
  bulk: "/dev/virtio-ports/capsem.bulk",
  traffic: "/dev/virtio-ports/capsem.traffic",
  helper: "/opt/capsem/capsem-helper",
  workloadRoot: "/mnt/root",
  disk: "/dev/vdb",
  cgroups: "/sys/fs/cgroup",
  machineId: "/run/machine-id",
  sysrq: "/proc/sysrq-trigger",
};

const PLACE_OF: ReadonlyMap<string, keyof GuestPlaces> = new Map([
  ["--control", "control"],
  ["--bulk", "bulk"],
  ["--traffic", "traffic"],
  ["--helper", "helper"],
  ["--workload-root", "workloadRoot"],
  ["--disk", "disk"],
  ["--cgroups", "cgroups"],
  ["--machine-id", "machineId"],
  ["--sysrq", "sysrq"],
]);

/** `--control PATH --bulk PATH ...`: a guest gives none, tests have other places. */
export function parseArguments(args: readonly string[]): GuestPlaces {
  const places: Record<keyof GuestPlaces, string> = { ...DEFAULT_PLACES };
  for (let at = 0; at < args.length; at += 2) {
    const place = PLACE_OF.get(args[at] ?? "");
    const value = args[at + 1];
    if (place === undefined) throw new Failure("invalid_input", `Cannot start: unknown option "${args[at]}"`);
    if (value === undefined) throw new Failure("invalid_input", `Cannot start: ${args[at]} needs a value`);
    places[place] = value;
  }
  return places;
}
