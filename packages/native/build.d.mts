export function buildNative(rootDir: string, outDir: string): Promise<string[]>;
