-- Reading by programs that remember positions themselves, such as Spark in its checkpoint. What they remember is a
-- position of a past, from before or after a `seek`: only the server knows whether it still means the same events.

-- What comes next after a position: up to `n` events, none behind `until`. `moved`: somebody has moved the group, or a
-- failover has lost what was read; what comes next begins after `from_pos`, and events may have known positions.
create function plan_stream_v1(of_group text, as_owner text, after_pos bigint, of_history text, of_seeks int, n int,
  until bigint, out from_pos bigint, out end_pos bigint, out history text, out seeks int, out moved boolean)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  g subscription_groups;
  r record;
begin
  if hold_group_v1(of_group, as_owner) is null then
    raise exception 'the group % has another reader', of_group using errcode = 'HG001';
  end if;
  select * into g from subscription_groups where id = of_group;
  select * into r from resume_history_v1(of_history, after_pos);
  history := r.history;
  seeks := g.seeks;
  moved := r.lost or coalesce(of_seeks <> g.seeks, false);
  from_pos := case when of_seeks <> g.seeks then coalesce(group_cursor(g.gno), 0) else r.pos end;
  end_pos := coalesce((select max(p.pos) from next_positions(g.gno, greatest(from_pos, g.overrun_to), n) as p
    where p.pos <= until), from_pos);
end $$;

-- What is before a position has been handled. False: it was read before the group was moved, or in a lost past, and
-- the cursor stays where it is.
create function commit_stream_v1(of_group text, as_owner text, new_pos bigint, of_history text, of_seeks int)
returns boolean language plpgsql volatile set search_path from current as $$
declare
  held bigint := hold_group_v1(of_group, as_owner);
  g subscription_groups;
begin
  if held is null then
    raise exception 'the group % has another reader', of_group using errcode = 'HG001';
  end if;
  select * into g from subscription_groups where id = of_group for update;
  if of_seeks <> g.seeks or (select r.lost from resume_history_v1(of_history, new_pos) as r) then
    return false;
  end if;
  perform set_group_cursor_v1(of_group, new_pos, false, as_owner, held);
  return true;
end $$;
