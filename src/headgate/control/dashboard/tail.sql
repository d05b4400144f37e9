-- The newest messages of a topic of the log.
select m.partition, m."offset", m.key, m.value, m.headers, m."timestamp"
from kafka.newest(%(topic)s, %(count)s) as m
