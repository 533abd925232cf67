# Microsoft Agent Framework
# needs: agent-framework-openai
import asyncio

from agent_framework.openai import OpenAIChatClient


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


async def main() -> None:
    agent = OpenAIChatClient(model="gpt-4o").as_agent(name="forecaster", tools=[get_weather])
    print(await agent.run("What is the weather in Paris?"))


asyncio.run(main())
