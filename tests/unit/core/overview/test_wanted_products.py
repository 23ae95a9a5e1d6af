"""Which product a job asks for."""

import pytest

from berth.core.overview.wanted_products import wanted_of, wanted_product
from berth.formats.manifests.reader import read_job
from berth.products.catalogue import NODE_PRODUCTS
from tests.support.cells import a_job


@pytest.mark.parametrize("name", NODE_PRODUCTS)
def test_a_job_file_that_names_a_product_asks_for_it(name: str) -> None:
    spec = {"product": name, "chips": 1}
    job = {"apiVersion": "berth/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    assert wanted_product(wanted_of(read_job(job, path="job")[0])) == name


def test_a_job_that_says_the_resource_alone_asks_for_a_product_that_needs_no_more() -> None:
    plain = a_job("j", resource="huawei.com/Ascend310P", node_selector={}, labels={}, annotations={})
    assert wanted_product(wanted_of(plain)) == "310p"


def test_a_job_of_a_resource_that_no_product_has_asks_for_none() -> None:
    assert wanted_product(wanted_of(a_job("j", resource="example.com/chip"))) == ""
    assert wanted_product(wanted_of(a_job("j", node_selector={"accelerator-type": "other"}))) == ""
