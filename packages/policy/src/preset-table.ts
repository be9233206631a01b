import type { PresetName } from "./preset-names.ts";

/**
 * What no preset leaves out: private places, secrets that would leave, doubtful input into privileged tools.
 * A fact that nobody stated counts as the worse one: `has` asks for it, because a comparison would not match.
 */
const COMMON = `
[default.metadata_hosts]
action = "block"
match = '''
cidr(http.host, ["169.254.0.0/16", "fe80::/10", "fd00:ec2::/32"])
  || host_in(http.host, ["metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"])
'''
reason = "this address answers with credentials of the machine"

[default.metadata_addresses]
action = "block"
match = 'cidr(network.destination.ip, ["169.254.0.0/16", "fe80::/10", "fd00:ec2::/32"])'
reason = "this address answers with credentials of the machine"

[default.secret_to_network]
action = "block"
match = '''
event.type in ["http.request", "dns.query", "network.connect", "model.call"] && tainted(label, "secret")
'''
reason = "a secret would leave the machine"
detection_level = "high"

[default.secret_to_external_server]
action = "block"
match = '''
event.type == "mcp.tool_call" && tainted(label, "secret")
  && !(has(mcp.server.external) && !mcp.server.external)
'''
reason = "a secret would go to an external server"
detection_level = "high"

[default.untrusted_to_privileged_tool]
action = "ask"
match = 'capsule.level >= 3 && tainted(label, "untrusted")'
reason = "a privileged tool would work on what came from outside"
detection_level = "medium"

[default.actuation]
action = "ask"
match = 'capsule.level >= 4 && !(has(capsule.confirmed) && capsule.confirmed)'
reason = "a tool that acts on the world needs a confirmation of exactly these arguments"

[default.changed_tool]
action = "ask"
match = '''
event.type == "mcp.tool_call" && mcp.server.external && !(has(mcp.server.pinned) && mcp.server.pinned)
'''
reason = "this tool is not the one that was approved"
detection_level = "medium"
`;

const PRIVATE = `
[default.private_hosts]
action = "block"
match = '''
cidr(http.host, [
  "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
  "224.0.0.0/3", "::/127", "fc00::/7", "ff00::/8"
]) || host_in(http.host, ["localhost", "local", "internal"])
'''
reason = "private and local hosts are closed"

[default.private_addresses]
action = "block"
match = '''
!(has(network.direction) && network.direction == "inbound") && cidr(network.destination.ip, [
  "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
  "224.0.0.0/3", "::/127", "fc00::/7", "ff00::/8"
])
'''
reason = "private and local addresses are closed"
`;

/**
 * Package registries are not listed: which ones a machine uses is in its own package managers' configuration, from
 * where whoever composes the layers adds them.
 */
const MODEL_DOMAINS = `["anthropic.com", "openai.com", "generativelanguage.googleapis.com"]`;

const LISTED = `
[default.model_providers]
action = "allow"
match = '''host_in(http.host, ${MODEL_DOMAINS})'''

[default.model_provider_names]
action = "allow"
match = '''host_in(dns.qname, ${MODEL_DOMAINS})'''

[default.declared_tools]
action = "allow"
match = 'event.type == "mcp.tool_call" && mcp.server.pinned'
`;

/** What happens where no rule matches. Answers, records and acts inside the VM are allowed in each preset. */
function posture(outward: string, tools: string, capsules: string): string {
  return `
[posture]
"http.request" = "${outward}"
"http.response" = "allow"
"dns.query" = "${outward}"
"mcp.event" = "allow"
"mcp.tool_list" = "allow"
"mcp.tool_call" = "${tools}"
"mcp.tool_result" = "allow"
"model.call" = "${outward === "block" ? "block" : "allow"}"
"file.import" = "allow"
"file.export" = "allow"
"file.event" = "allow"
"process.exec" = "allow"
"process.exec_complete" = "allow"
"process.audit" = "allow"
"network.connect" = "${outward}"
"network.lifecycle" = "allow"
"capsule.invoke" = "${capsules}"
"vm.lifecycle" = "allow"
"settings.change" = "allow"
"credential.substitution" = "${outward === "block" ? "block" : "allow"}"
"security.rule" = "allow"
"security.ask" = "allow"
`;
}

/** Each preset as the text of a rule file: what a user could have written, at the built-in priority. */
export const PRESETS: Readonly<Record<PresetName, string>> = {
  "locked-down": `# Nothing goes out; declared tools only.
${posture("block", "block", "ask")}${COMMON}
[default.declared_tools]
action = "allow"
match = 'event.type == "mcp.tool_call" && mcp.server.pinned'
`,
  developer: `# Package registries, model providers and declared MCP servers; the rest of the network asks.
${posture("ask", "ask", "allow")}${COMMON}${PRIVATE}${LISTED}`,
  open: `# Everything but metadata addresses, secrets that would leave, and privileged tools on doubtful input.
${posture("allow", "allow", "allow")}${COMMON}`,
};
