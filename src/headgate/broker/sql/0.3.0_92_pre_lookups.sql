-- The last state and the last cursor are looked up, whatever statistics say. Both tables are trimmed to a few rows every
-- minute, and autovacuum may look at them just then: a plan that is made from what it found reads the whole table, and
-- is kept while thousands of rows are added.

alter function last_state() set enable_seqscan = off;
alter function group_cursor(int) set enable_seqscan = off;
alter function set_group_cursor_v1(text, bigint, boolean, text, bigint) set enable_seqscan = off;
alter function resume_history_v1(text, bigint) set enable_seqscan = off;
