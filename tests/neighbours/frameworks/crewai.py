# CrewAI
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


agent = Agent(
    role="forecaster", goal="Know the weather.", backstory="A meteorologist.", llm=LLM(model="openai/gpt-4o"), tools=[get_weather]
)
task = Task(description="What is the weather in Paris?", expected_output="One sentence.", agent=agent)
print(Crew(agents=[agent], tasks=[task]).kickoff())
