"""The data pipeline on Spark: session, transforms, dispatch, state, supervision."""
