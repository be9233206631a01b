import type { ServiceStatus } from "@capsem/api";
import type { HomeLayout } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { Powers } from "../powers.ts";
import type { Lifecycle } from "../vm/lifecycle.ts";
import type { Registry } from "../vm/registry.ts";

/** What the handlers work on. */
export interface RouteParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly registry: Registry;
  readonly lifecycle: Lifecycle;
  readonly log: ServiceLog;
  readonly status: () => ServiceStatus;
  readonly sampleDisk: (id: string) => Promise<void>;
}
