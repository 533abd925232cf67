# LlamaIndex
# needs: llama-index-llms-openai
import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


async def main() -> None:
    agent = FunctionAgent(name="forecaster", tools=[get_weather], llm=OpenAI(model="gpt-4o"))
    print(await agent.run("What is the weather in Paris?"))


asyncio.run(main())
