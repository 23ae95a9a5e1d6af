"""What the probes of a process answer."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from berth.runtime.config import ProbeConfig


async def answer(session: aiohttp.ClientSession, port: int, path: str) -> tuple[int, str]:
    """Status and text; 0 while nobody listens."""
    try:
        async with session.get(f"http://{ProbeConfig().host}:{port}/{path}") as response:
            return response.status, (await response.text()).strip()
    except aiohttp.ClientConnectionError:
        return 0, ""


async def samples(session: aiohttp.ClientSession, port: int) -> dict[str, float]:
    """Values of all metrics, by name and the values of their labels with dots between."""
    _, text = await answer(session, port, "metrics")
    return {
        ".".join([sample.name, *(value for name, value in sample.labels.items() if name != "le")]): sample.value
        for family in text_string_to_metric_families(text + "\n")
        for sample in family.samples
    }
