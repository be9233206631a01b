/**
 * Takes the place of the SDK's platform module in the bundle (tools/bundles.mjs). The SDK's brings a JSON schema
 * validator of 300 KB for the answers to elicitations; this server asks its clients nothing.
 */
export { default as process } from "node:process";

export class DefaultJsonSchemaValidator {
  getValidator(): never {
    throw new Error("Cannot validate a client's answer: this server asks for none");
  }
}
