# smolagents
# needs: smolagents[openai]
import os

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return f"sunny in {city}"


model = OpenAIServerModel("gpt-4o", api_base=os.environ["OPENAI_BASE_URL"], api_key="none")
print(ToolCallingAgent(tools=[get_weather], model=model, name="forecaster").run("What is the weather in Paris?"))
