# Pydantic AI
# needs: pydantic-ai-slim[openai]
agent = Agent("openai:gpt-4o", name="forecaster", instructions="You know the weather.")


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


print(agent.run_sync("What is the weather in Paris?").output)
