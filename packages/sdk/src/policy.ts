import type {
  AskInfo,
  Changed,
  CorpInfo,
  CredentialForgotten,
  CredentialInfo,
  RuleFields,
  RuleList,
  SettingList,
} from "@capsem/api";
import { REPLAY_TIMEOUT_MS } from "./limits.ts";
import { type CallOptions, type OperationInput, type OperationResult, operation } from "./operation.ts";
import type { Transport } from "./transport.ts";

type Body<N extends "ruleEvaluate" | "ruleReplay" | "ruleLint" | "askResolve" | "credentialInject"> =
  OperationInput<N>["body"];
export type EvaluateRequest = Body<"ruleEvaluate">;
export type ReplayRequest = Body<"ruleReplay">;
export type SettingEdit = OperationInput<"settingEdit">["body"]["edits"][number];

export interface Rules {
  /** In the order of judgement. */
  list(options?: CallOptions): Promise<RuleList>;
  /** One of the user's, by its name or id; it holds when this returns. */
  put(name: string, rule: RuleFields, options?: CallOptions): Promise<Changed>;
  delete(name: string, options?: CallOptions): Promise<Changed>;
  /** A dry run: what would be decided of an event, and why. */
  evaluate(request: EvaluateRequest, options?: CallOptions): Promise<OperationResult<"ruleEvaluate">>;
  /** What other rules would have decided of a VM's past. */
  replay(request: ReplayRequest, options?: CallOptions): Promise<OperationResult<"ruleReplay">>;
  /** Of a rule file's text, or of the rules in force. */
  lint(rules?: string, options?: CallOptions): Promise<OperationResult<"ruleLint">>;
}

export interface Settings {
  info(options?: CallOptions): Promise<SettingList>;
  /** All of them or none; null takes the default again. */
  edit(edits: readonly SettingEdit[], options?: CallOptions): Promise<SettingList>;
}

export interface Corp {
  info(options?: CallOptions): Promise<CorpInfo>;
  /** Whether a text could be the corporation's policy; its faults are an answer, not an error. */
  validate(text: string, options?: CallOptions): Promise<OperationResult<"corpValidate">>;
  /** Reads the corporation's and the user's files again. */
  reload(options?: CallOptions): Promise<CorpInfo>;
}

export interface Asks {
  /** The newest first. Those that come are told by `client.events()`. */
  list(query?: OperationInput<"asks">["query"], options?: CallOptions): Promise<AskInfo[]>;
  resolve(id: string, resolution: Body<"askResolve">, options?: CallOptions): Promise<AskInfo>;
}

export interface Credentials {
  inject(credential: Body<"credentialInject">, options?: CallOptions): Promise<CredentialInfo>;
  list(options?: CallOptions): Promise<CredentialInfo[]>;
  /** The answer names tool servers that cannot be reached without it. */
  delete(ref: string, options?: CallOptions): Promise<CredentialForgotten>;
}

export function rulesOf(transport: Transport): Rules {
  return {
    list: (options) => operation(transport, "rules")({}, options),
    put: (id, body, options) => operation(transport, "rulePut")({ params: { id }, body }, options),
    delete: (id, options) => operation(transport, "ruleDelete")({ params: { id } }, options),
    evaluate: (body, options) => operation(transport, "ruleEvaluate")({ body }, options),
    replay: (body, options) =>
      operation(transport, "ruleReplay")({ body }, { timeoutMs: REPLAY_TIMEOUT_MS, ...options }),
    lint: (rules, options) =>
      operation(transport, "ruleLint")({ body: rules === undefined ? {} : { rules } }, options),
  };
}

export function settingsOf(transport: Transport): Settings {
  return {
    info: (options) => operation(transport, "settings")({}, options),
    edit: (edits, options) => operation(transport, "settingEdit")({ body: { edits: [...edits] } }, options),
  };
}

export function corpOf(transport: Transport): Corp {
  return {
    info: (options) => operation(transport, "corp")({}, options),
    validate: (text, options) => operation(transport, "corpValidate")({ body: { text } }, options),
    reload: (options) => operation(transport, "corpReload")({}, options),
  };
}

export function asksOf(transport: Transport): Asks {
  return {
    list: async (query = {}, options) => (await operation(transport, "asks")({ query }, options)).asks,
    resolve: (id, body, options) => operation(transport, "askResolve")({ params: { id }, body }, options),
  };
}

export function credentialsOf(transport: Transport): Credentials {
  return {
    inject: (body, options) => operation(transport, "credentialInject")({ body }, options),
    list: async (options) => (await operation(transport, "credentials")({}, options)).credentials,
    delete: (ref, options) => operation(transport, "credentialDelete")({ params: { ref } }, options),
  };
}
