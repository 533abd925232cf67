# OpenAI Agents SDK
from agents import Agent, Runner, function_tool


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


agent = Agent(name="forecaster", instructions="You know the weather.", tools=[get_weather], model="gpt-4o")
print(Runner.run_sync(agent, "What is the weather in Paris?").final_output)
