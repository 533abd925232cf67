# AutoGen
# needs: autogen-ext[openai]==0.7.5
import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


async def main() -> None:
    client = OpenAIChatCompletionClient(model="gpt-4o")
    agent = AssistantAgent("forecaster", client, tools=[get_weather], reflect_on_tool_use=True)
    print((await agent.run(task="What is the weather in Paris?")).messages[-1].to_text())


asyncio.run(main())
