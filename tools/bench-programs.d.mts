export function buildBench(out: string): Promise<void>;
