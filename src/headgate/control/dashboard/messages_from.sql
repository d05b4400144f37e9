-- The same of a partition, from an offset on.
select %(partition)s::int, m."offset", substring(m.key from 1 for %(most)s), length(m.key),
  substring(m.value from 1 for %(most)s), length(m.value),
  case when length(m.headers::text) <= %(most)s then m.headers end, m."timestamp"
from kafka.read(%(topic)s, %(partition)s, %(offset)s, %(count)s) as m
