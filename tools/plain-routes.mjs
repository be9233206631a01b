import { evaluated } from "./evaluated.mjs";

const SCHEMAS = ["params", "query", "body", "result"];

/** The route table without its schemas, for a program that checks nothing with them. One that tries is told. */
export const plainRoutes = {
  name: "plain routes",
  setup({ onLoad }) {
    onLoad({ filter: /\/packages\/api\/src\/route-table\.ts$/ }, async ({ path }) => {
      const { ROUTES } = await evaluated(path);
      const rows = JSON.stringify(ROUTES, (key, value) => (SCHEMAS.includes(key) ? undefined : value));
      const getters = SCHEMAS.map((name) => `get ${name}() { return absent(); }`).join(", ");
      return {
        contents: `
          const absent = () => { throw new Error("Cannot use a route's schema: this program has none"); };
          const schemas = { ${getters} };
          export const ROUTES = ${rows};
          for (const row of Object.values(ROUTES)) Object.setPrototypeOf(row, schemas);`,
      };
    });
  },
};
