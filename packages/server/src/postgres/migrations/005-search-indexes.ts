/** Indexes for searches. */
export const searchIndexes = `
-- The elements of a list as one text. Declared immutable, as an index requires: array_to_string is only
-- stable in general, but its result never changes for texts.
create function offshoot.list_text(list text[]) returns text
language sql immutable strict parallel safe
as $$ select array_to_string(list, E'\\n') $$;
`
