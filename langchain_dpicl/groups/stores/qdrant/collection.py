"""A Qdrant collection: whether it can be searched shard by shard, and its errors."""

from __future__ import annotations

from qdrant_client import models

from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.groups.stores.errors import hiding_errors


def dense_vectors(
    info: models.CollectionInfo, collection: str, using: str | None
) -> models.VectorParams:
    """Return what a collection says of the vectors that are searched.

    Args:
        info: Its description.
        collection: Its name, for the message.
        using: The vectors' name, None where there is one vector without a name.

    Raises:
        InvalidParameterError: If they are not there.
    """
    vectors = info.config.params.vectors
    if isinstance(vectors, dict):
        vectors = vectors.get(using or "")
    elif using is not None:
        vectors = None
    if vectors is None or vectors.multivector_config is not None:
        raise InvalidParameterError(
            f"The collection {collection!r} has no dense vector of the name that the "
            "store searches, one for each record."
        )
    return vectors


def cosine_vectors(
    info: models.CollectionInfo, collection: str, using: str | None
) -> models.VectorParams:
    """Return the same of vectors that the server compares by cosine.

    Raises:
        InvalidParameterError: If they are not there, or not compared by cosine.
    """
    vectors = dense_vectors(info, collection, using)
    if vectors.distance != models.Distance.COSINE:
        raise InvalidParameterError(
            f"The collection {collection!r} compares vectors by "
            f"{vectors.distance.value}, and groups need cosines: make it with "
            "Distance.COSINE."
        )
    return vectors


def shared_index(
    info: models.CollectionInfo, params: models.VectorParams
) -> str | None:
    """Return in words which index a collection may have, None if it can have none."""
    config = info.config
    if config.quantization_config is not None or params.quantization_config is not None:
        return "quantizes its vectors"
    if info.indexed_vectors_count:
        return "has an HNSW graph"
    m = config.hnsw_config.m
    if params.hnsw_config is not None and params.hnsw_config.m is not None:
        m = params.hnsw_config.m
    if m != 0 and config.optimizer_config.indexing_threshold != 0:
        return "builds an HNSW graph as soon as it has enough vectors"
    return None


def _failure(error: Exception) -> str:
    return (
        f"Qdrant could not be asked ({type(error).__name__}); nothing was released. Is "
        "it running, and is the collection there?"
    )


private_errors = hiding_errors(_failure)
"""Turns what the client raises into an error of ours, which holds no private text."""
