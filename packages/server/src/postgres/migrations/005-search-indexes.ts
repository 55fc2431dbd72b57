/** Indexes for searches. */
export const searchIndexes = `
-- The elements of a list as one text. PostgreSQL cannot know that it never changes for texts, which an
-- index asks for.
create function offshoot.list_text(list text[]) returns text
language sql immutable strict parallel safe
as $$ select array_to_string(list, E'\\n') $$;
`
