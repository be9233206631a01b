export { type AddressKind, addressKind } from "./address.ts";
export { HTTP_FAILURES, type HttpFailureKind, httpFailure } from "./error.ts";
export { HOP_BY_HOP, headerOf, headerProblem } from "./headers.ts";
export {
  createHttpClient,
  type HttpBody,
  type HttpClient,
  type HttpClientOptions,
  type HttpHeader,
  type HttpRequest,
  type HttpResponse,
} from "./http-client.ts";
export { type HttpAnswer, type HttpCall, type HttpServe, httpMethods } from "./http-server.ts";
export { NET_LIMITS } from "./limits.ts";
export {
  addressRefusal,
  canonicalGrant,
  judgeUrl,
  parseUrl,
  type Target,
  type UrlJudgement,
  type UrlParts,
  type UrlRefusal,
} from "./url-policy.ts";
