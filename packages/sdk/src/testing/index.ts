export { type FixtureOptions, type FixtureService, startFixtureService } from "./fixture-service.ts";
