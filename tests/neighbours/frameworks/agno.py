# Agno
# needs: openai
from agno.agent import Agent
from agno.models.openai import OpenAIChat


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


agent = Agent(name="forecaster", model=OpenAIChat(id="gpt-4o"), tools=[get_weather])
print(agent.run("What is the weather in Paris?").content)
