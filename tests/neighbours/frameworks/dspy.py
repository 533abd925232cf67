# DSPy
import dspy


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


dspy.configure(lm=dspy.LM("openai/gpt-4o", cache=False))
print(dspy.ReAct("question -> answer", tools=[get_weather])(question="What is the weather in Paris?").answer)
