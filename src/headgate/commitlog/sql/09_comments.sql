-- What whoever looks at the view with a tool should know before typing a query. PostgreSQL learns from no condition on a
-- row that a function returns which arguments it need not be called with, and from no order of them that it may stop.

comment on view kafka.messages is
'Every message of every topic, for those who want to see all of them. Conditions on topic and partition are answered by
index; conditions on offset, global_offset and timestamp, ORDER BY and LIMIT read and unpack the whole of what these
leave. Answered by index, however long a topic is: kafka.newest(topic, n) instead of ORDER BY offset DESC LIMIT n,
kafka.since(topic, time, n) instead of timestamp > time, kafka.after(topic, global_offset, n) instead of
global_offset > x, kafka.read(topic, partition, from_offset, n) and kafka.message(topic, partition, offset).';
comment on column kafka.messages."offset" is
'By index: kafka.newest(topic, n), kafka.read(topic, partition, from_offset, n), kafka.message(topic, partition, offset)';
comment on column kafka.messages.global_offset is 'By index: kafka.after(topic, global_offset, n)';
comment on column kafka.messages."timestamp" is 'By index: kafka.since(topic, time, n)';
comment on function kafka.newest(text, int, int) is 'The last n messages of a topic, the newest first: by index';
comment on function kafka.since(text, timestamptz, int) is 'The first n messages of a topic from a time on: by index';
comment on function kafka.after(text, bigint, int) is 'The first n messages of a topic behind a global offset: by index';
comment on function kafka.read(text, int, bigint, int) is 'n messages of a partition from an offset on: by index';
comment on function kafka.message(text, int, bigint) is 'One message: by index';
