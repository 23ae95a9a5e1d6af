"""Which product of the catalogue a job asks for, as far as its request says."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY
from berth.schemas.intake import JobRequest

_PRODUCTS: Final = tuple(NODE_PRODUCTS.values())
_SELECTED: Final = tuple(sorted({name for one in _PRODUCTS for name in one.selector}))
_LABELLED: Final = tuple(sorted({name for one in _PRODUCTS for name in one.job_labels}))


class Wanted(NamedTuple):
    """What of a request tells its product: equal ones ask for the same."""

    resource: str
    policy: str
    selector: tuple[str | None, ...]
    labels: tuple[str | None, ...]


def wanted_of(request: JobRequest) -> Wanted:
    """What of a request tells its product; its pods ask for one resource, so that the first ones stand for all."""
    selector = request.node_selector
    if request.tasks and request.tasks[0].node_selector:
        selector = selector | request.tasks[0].node_selector
    return Wanted(
        request.resource,
        request.annotations.get(ANNOTATION_POLICY, ""),
        tuple(map(selector.get, _SELECTED)),
        tuple(map(request.labels.get, _LABELLED)),
    )


def wanted_product(wanted: Wanted) -> str:
    """Name of the product that is asked for; empty if none fits.

    Of several that fit it is the one that says most, such as a label beside the resource; of those the first one of the
    catalogue.
    """
    fitting = [
        (len(one.selector) + len(one.job_labels) + bool(one.policy), one.name)
        for one in _PRODUCTS
        if one.resource == wanted.resource
        and one.policy in {"", wanted.policy}
        and _holds(one.selector, _SELECTED, wanted.selector)
        and _holds(one.job_labels, _LABELLED, wanted.labels)
    ]
    return max(fitting, key=lambda found: found[0])[1] if fitting else ""


def _holds(asked: Mapping[str, str], names: Iterable[str], values: Iterable[str | None]) -> bool:
    found = dict(zip(names, values, strict=True))
    return all(found[name] == value for name, value in asked.items())
