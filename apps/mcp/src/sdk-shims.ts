/**
 * Takes the place of the SDK's platform module in the bundle (tools/bundles.mjs). The SDK's brings a JSON schema
 * validator of 300 KB for the answers to elicitations; this server's one form is read by `ask-form.ts`.
 */
export { default as process } from "node:process";

export class DefaultJsonSchemaValidator {
  getValidator(): never {
    throw new Error("Cannot validate a client's answer: the SDK is not asked to");
  }
}
