import type { ServiceStats, ServiceStatus } from "@capsem/api";
import type { Boundary, PolicySource } from "../boundary/parts.ts";
import type { EventHub } from "../events/event-hub.ts";
import type { HomeLayout } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { Powers } from "../powers.ts";
import type { FindingBook } from "../trouble/finding-book.ts";
import type { Lifecycle } from "../vm/lifecycle.ts";
import type { Registry } from "../vm/registry.ts";
import type { VmCounts } from "../vm/vm-watch.ts";

/** What the handlers work on. */
export interface RouteParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly registry: Registry;
  readonly lifecycle: Lifecycle;
  readonly boundary: Boundary;
  readonly policy: PolicySource;
  readonly log: ServiceLog;
  readonly status: () => ServiceStatus;
  readonly stats: () => Promise<ServiceStats>;
  readonly events: EventHub;
  readonly findings: FindingBook;
  readonly counts: VmCounts;
  /** Of a VM that is gone: its evidence is safe when this resolves. Never rejects. */
  readonly finishLedger: (id: string) => Promise<void>;
  readonly sampleDisk: (id: string) => Promise<void>;
}
