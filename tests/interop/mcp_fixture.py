"""Our MCP server with what a memory server does not have, for the conformance suite alone.

    python mcp_fixture.py HOME plain|fixture|broken

`plain` is the server as it is; `fixture` adds tools, prompts and resources that the suite asks for by name, on the
same server, transport and sealing of state; `broken` checks no Host, seals no state and names its tools by number.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import mcp_types as types
from mcp.server.request_state import RequestStateBoundary
from mcp.shared.exceptions import MCPError

from memory import mcp_http, mcp_server, wiring
from memory.model import Principal
from tlog.listener import Limits, serve

ME = Principal("default", "default", "cli", reported=True)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
TEXT = types.TextContent(text="This is a simple text response for testing.")
IMAGE = types.ImageContent(data=PIXEL, mime_type="image/png")
AUDIO = types.AudioContent(data=SOUND, mime_type="audio/wav")


def embedded(uri: str) -> types.EmbeddedResource:
    held = types.TextResourceContents(uri=uri, mime_type="text/plain", text="an embedded text")
    return types.EmbeddedResource(resource=held)


PLAIN: dict[str, list[Any]] = {
    "test_simple_text": [TEXT],
    "test_image_content": [IMAGE],
    "test_audio_content": [AUDIO],
    "test_embedded_resource": [embedded("test://embedded-resource")],
    "test_multiple_content_types": [TEXT, IMAGE, embedded("test://mixed-content-resource")],
}


def form(message: str, name: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(text: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    )


NAME, ROOTS = form("What is your name?", "name"), types.ListRootsRequest()
# tool: the rounds of it, each with what it asks for and the state it gives
ROUNDS: dict[str, list[tuple[dict[str, Any], str | None]]] = {
    "test_input_required_result_elicitation": [({"user_name": NAME}, None)],
    "test_input_required_result_sampling": [
        ({"capital_question": sampling("What is the capital of France?")}, None)
    ],
    "test_input_required_result_list_roots": [({"client_roots": ROOTS}, None)],
    "test_input_required_result_request_state": [
        ({"confirm": form("Please confirm", "ok", "boolean")}, "first")
    ],
    "test_input_required_result_tampered_state": [
        ({"confirm": form("Please confirm", "ok", "boolean")}, "first")
    ],
    "test_input_required_result_multiple_inputs": [
        ({"user_name": NAME, "greeting": sampling("Generate a greeting"), "client_roots": ROOTS}, "first")
    ],
    "test_input_required_result_multi_round": [
        ({"step1": form("Step 1: What is your name?", "name")}, "first"),
        ({"step2": form("Step 2: What is your favorite color?", "color")}, "second"),
    ],
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
OTHERS = (
    "test_error_handling",
    "test_tool_with_progress",
    "test_missing_capability",
    "test_input_required_result_capabilities",
)


def tools() -> list[types.Tool]:
    empty = {"type": "object", "properties": {}}
    made = [
        types.Tool(name=name, description="a fixture", input_schema=empty)
        for name in (*PLAIN, *ROUNDS, *OTHERS)
    ]
    return [*made, types.Tool(name="json_schema_2020_12_tool", description="a fixture", input_schema=SCHEMA)]


async def call(context: Any, params: types.CallToolRequestParams) -> Any:
    name = params.name
    if name in PLAIN:
        return types.CallToolResult(content=PLAIN[name])
    if name in ROUNDS:
        return rounds(ROUNDS[name], params)
    if name == "test_error_handling":
        failed = types.TextContent(text="This tool intentionally returns an error for testing")
        return types.CallToolResult(content=[failed], is_error=True)
    if name == "test_tool_with_progress":
        for done in (0, 50, 100):
            await context.session.send_progress_notification(
                context.meta["progress_token"], done, 100, related_request_id=str(context.request_id)
            )
        return types.CallToolResult(content=[TEXT])
    can = context.session.client_capabilities
    if name == "test_missing_capability":
        if can is None or can.sampling is None:
            wanted = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", wanted)
        return types.CallToolResult(content=[TEXT])
    if name == "test_input_required_result_capabilities":
        asked: dict[str, Any] = {} if can.elicitation is None else {"user_name": NAME}
        asked |= {} if can.sampling is None else {"greeting": sampling("Generate a greeting")}
        return types.InputRequiredResult(input_requests=asked)
    return None


def rounds(all_rounds: list[tuple[dict[str, Any], str | None]], params: types.CallToolRequestParams) -> Any:
    given = params.input_responses or {}
    # What the fixture did not give, it takes for the first round: that it gave it is for the seal to know.
    at = next((place for place, (_, state) in enumerate(all_rounds) if state == params.request_state), 0)
    asked, state = all_rounds[at]
    if not asked.keys() <= given.keys():
        return types.InputRequiredResult(input_requests=asked, request_state=state)
    if at + 1 < len(all_rounds):
        asked, state = all_rounds[at + 1]
        return types.InputRequiredResult(input_requests=asked, request_state=state)
    said = f"state-ok: {', '.join(one.model_dump_json(by_alias=True, exclude_none=True) for one in given.values())}"
    return types.CallToolResult(content=[types.TextContent(text=said)])


PROMPTS: dict[str, list[Any]] = {
    "test_simple_prompt": [types.TextContent(text="This is a simple prompt for testing.")],
    "test_prompt_with_arguments": [],
    "test_prompt_with_embedded_resource": [],
    "test_prompt_with_image": [IMAGE, types.TextContent(text="Please analyze the image above.")],
    "test_input_required_result_prompt": [TEXT],
}
ARGUMENTS = {
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
}


async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
    def arguments(name: str) -> list[types.PromptArgument]:
        return [types.PromptArgument(name=one, required=True) for one in ARGUMENTS.get(name, ())]

    return types.ListPromptsResult(
        prompts=[
            types.Prompt(name=name, description="a fixture", arguments=arguments(name)) for name in PROMPTS
        ]
    )


async def get_prompt(_: Any, params: types.GetPromptRequestParams) -> Any:
    given = params.arguments or {}
    if params.name not in PROMPTS:
        raise MCPError(types.INVALID_PARAMS, "there is no such prompt")
    if params.name == "test_input_required_result_prompt" and not params.input_responses:
        asked = form("What context should the prompt use?", "context")
        return types.InputRequiredResult(input_requests={"user_context": asked})
    contents = PROMPTS[params.name]
    if params.name == "test_prompt_with_arguments":
        said = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        contents = [types.TextContent(text=said)]
    if params.name == "test_prompt_with_embedded_resource":
        contents = [
            embedded(given["resourceUri"]),
            types.TextContent(text="Please process the embedded resource."),
        ]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in contents])


async def complete(_: Any, __: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(
        completion=types.Completion(values=["paris", "park"], total=2, has_more=False)
    )


READABLE = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text",
        mime_type="text/plain",
        text="This is the content of the static text resource.",
    ),
    "test://static-binary": types.BlobResourceContents(
        uri="test://static-binary", mime_type="image/png", blob=PIXEL
    ),
    "test://template/123/data": types.TextResourceContents(
        uri="test://template/123/data", mime_type="application/json", text='{"id":"123","templateTest":true}'
    ),
}


def add_fixture(server: Any) -> None:
    """Adds the fixture in front of what the server has; what is not of it goes on to the server."""
    listed, called, read = (
        server.get_request_handler(name).handler for name in ("tools/list", "tools/call", "resources/read")
    )

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        found = await listed(context, params)
        return types.ListToolsResult(tools=[*found.tools, *tools()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        answer = await call(context, params)
        return await called(context, params) if answer is None else answer

    async def read_resource(context: Any, params: types.ReadResourceRequestParams) -> Any:
        found = READABLE.get(str(params.uri))
        return await read(context, params) if found is None else types.ReadResourceResult(contents=[found])

    async def list_templates(_: Any, __: Any) -> types.ListResourceTemplatesResult:
        one = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
        return types.ListResourceTemplatesResult(resource_templates=[one])

    async def set_level(_: Any, __: Any) -> types.EmptyResult:
        return types.EmptyResult()

    page = types.PaginatedRequestParams
    server.add_request_handler("tools/list", page, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.add_request_handler("prompts/list", page, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)
    server.add_request_handler("resources/templates/list", page, list_templates)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


def break_it(server: Any) -> None:
    """Takes away what the suite has to notice: the sealing of state, and names of tools."""
    server.middleware[:] = [one for one in server.middleware if not isinstance(one, RequestStateBoundary)]

    async def list_nothing(_: Any, __: Any) -> dict[str, Any]:
        return {"tools": [{"name": 7}]}

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_nothing)


def main() -> None:
    home_path, kind = sys.argv[1:]
    made = mcp_server.make_server

    def make_server(*given: Any) -> Any:
        server = made(*given)
        if kind != "plain":
            add_fixture(server)
        if kind == "broken":
            break_it(server)
        return server

    mcp_http.make_server = make_server
    hosts, origins = mcp_http.LOOPBACK_HOSTS, mcp_http.LOOPBACK_ORIGINS
    if kind == "broken":
        hosts, origins = (*hosts, "evil.example.com"), (*origins, "http://evil.example.com")
    with wiring.open_home(home_path) as home:
        home.memory(ME).remember("the suite reads a checkpoint")
        home.publish()
        app = mcp_http.make_asgi(home, lambda _: ME, hosts=hosts, origins=origins)
        serve(app, "127.0.0.1", 0, Limits(), lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
