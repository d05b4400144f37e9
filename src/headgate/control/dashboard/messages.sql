-- Messages of a topic as they are shown: of keys and values the beginning, and of headers nothing if they are long.
select m.partition, m."offset", substring(m.key from 1 for %(most)s), length(m.key),
  substring(m.value from 1 for %(most)s), length(m.value),
  case when length(m.headers::text) <= %(most)s then m.headers end, m."timestamp"
from kafka.newest(%(topic)s, %(count)s, %(partition)s) as m
