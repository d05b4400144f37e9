-- The table of the example: whatever happens in the shop is one row.
CREATE TABLE IF NOT EXISTS public.events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_type text NOT NULL,
    body jsonb NOT NULL DEFAULT '{}',
    happened_at timestamptz NOT NULL DEFAULT now()
);
-- Deletes carry the whole old row, so that they go where the row went.
ALTER TABLE public.events REPLICA IDENTITY FULL;
