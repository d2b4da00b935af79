"""A private tool for any client of the Model Context Protocol, and a client asking it.

`dpicl mcp mcp_server:make_tool`, in this folder, serves it to a desktop assistant or an
editor. Here the SDK's own client starts that command and asks until the budget is
spent. Put your records and your model in the place of the stand-ins.
"""

import asyncio
import os
import sys
from pathlib import Path

from langchain_core.tools import BaseTool
from mcp import Client, StdioServerParameters, stdio_client

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

QUESTIONS = [
    f"Which side effect do patients on {drug} report most?"
    for drug in ("lisinopril", "metformin", "sertraline")
]


def make_tool() -> BaseTool:
    chain = DPChain(
        groups=RetrievedGroups.from_documents(
            clinic(), HashingEmbeddings(), unit_key="patient_id", n_groups=100
        ),
        model=OfflineChatModel(),
        parser=VoteOutputParser(labels="draft"),
        # A file instead of ":memory:" keeps the account when the server is restarted.
        budget=PrivacyBudgetHandler(
            epsilon=4, delta=1e-6, queries=2, ledger=":memory:", account="example"
        ),
    )
    return create_dp_tool(
        chain, name="ask_notes", description="Asks the notes of a clinic."
    )


async def main() -> None:
    server = StdioServerParameters(
        command=str(Path(sys.executable).with_name("dpicl")),
        args=["mcp", "mcp_server:make_tool"],
        cwd=Path(__file__).parent,
        env=dict(os.environ),  # A model's key stands there.
    )
    async with Client(stdio_client(server)) as client:
        for tool in (await client.list_tools()).tools:
            print(f"The server has the tool {tool.name}.\n")
        for question in QUESTIONS:
            result = await client.call_tool("ask_notes", {"question": question})
            print(question)
            if result.is_error:
                said = [part.text for part in result.content if part.type == "text"]
                print("  refused:", *said)
            else:
                record = result.structured_content
                spent = record["account"]["epsilon_spent"]
                print(f"  {record['answer']} ({record['status']}, epsilon {spent:.2f})")


if __name__ == "__main__":
    asyncio.run(main())
