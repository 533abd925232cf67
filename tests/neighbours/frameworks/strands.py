# Strands Agents
# needs: strands-agents[openai]
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


agent = Agent(name="forecaster", model=OpenAIModel(model_id="gpt-4o"), tools=[get_weather])
print(agent("What is the weather in Paris?"))
