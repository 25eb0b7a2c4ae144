// What a JavaScript client of each era gets from our server: one JSON document of answers.
// node mcp_client.js modern|older stdio COMMAND ARGS… | http URL SECRET

const [era, way, ...rest] = process.argv.slice(2);
const answers = { asked: [], decline: true };
const info = { name: `js-${era}`, version: "1" };
const capabilities = { capabilities: { elicitation: { form: {} } } };
const onQuestion = async (request) => {
  answers.asked.push(request.params.message);
  return answers.decline ? { action: "decline" } : { action: "accept", content: {} };
};

async function make() {
  const headers = { requestInit: { headers: { Authorization: `Bearer ${rest[1]}` } } };
  const started = { command: rest[0], args: rest.slice(1), env: process.env, stderr: "inherit" };
  if (era === "modern") {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    const client = new Client(info, { ...capabilities, versionNegotiation: { mode: "auto" } });
    client.setRequestHandler("elicitation/create", onQuestion);
    const transport =
      way === "stdio" ? new StdioClientTransport(started) : new StreamableHTTPClientTransport(new URL(rest[0]), headers);
    return [client, transport];
  }
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const client = new Client(info, capabilities);
  client.setRequestHandler(ElicitRequestSchema, onQuestion);
  const transport =
    way === "stdio" ? new StdioClientTransport(started) : new StreamableHTTPClientTransport(new URL(rest[0]), headers);
  return [client, transport];
}

const [client, transport] = await make();
await client.connect(transport);
const call = async (name, given) => {
  const answer = await client.callTool({ name, arguments: given });
  const text = JSON.parse(answer.content[0].text);
  if (JSON.stringify(text) !== JSON.stringify(answer.structuredContent)) throw new Error("text and structure differ");
  return { ...answer.structuredContent, isError: answer.isError === true };
};
answers.version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? null;
answers.tools = (await client.listTools()).tools.map((one) => one.name);
answers.stored = await call("remember", { text: "it is blue", key: `door/${era}-${way}`, value: "blue" });
answers.current = await call("get", { key: `door/${era}-${way}` });
answers.refused = await call("remember", { text: "x", tenant: "other" });
answers.vkey = (await client.readResource({ uri: "muniment://log/vkey" })).contents[0].text;
const selection = { key: `door/${era}-${way}` };
answers.preview = await call("forget", selection);
answers.wrong = await call("forget", { ...selection, confirm: "yes" });
answers.declined = await call("forget", { ...selection, confirm: answers.preview.confirm });
answers.decline = false;
answers.erased = await call("forget", { ...selection, confirm: answers.preview.confirm });
answers.gone = await call("get", selection);
await client.close();
console.log(JSON.stringify(answers));
