# LangGraph, LangChain
# needs: langchain-openai
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


agent = create_agent(ChatOpenAI(model="gpt-4o"), [get_weather], name="forecaster")
print(agent.invoke({"messages": [{"role": "user", "content": "What is the weather in Paris?"}]})["messages"][-1].content)
