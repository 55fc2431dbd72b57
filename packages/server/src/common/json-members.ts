/** Splits the text of a JSON object, as the service writes it without spaces, into the texts of its members by name. */
export function membersOf(object: string): Map<string, string> {
  const members = new Map<string, string>()
  let start = 1
  let depth = 0
  let isInText = false
  for (let index = 0; index < object.length; index++) {
    const sign = object[index]
    if (isInText) {
      if (sign === '\\') index++
      else if (sign === '"') isInText = false
    } else if (sign === '"') isInText = true
    else if (sign === '{' || sign === '[') depth++
    else if (sign === '}' || sign === ']') depth--
    const isEnd = !isInText && ((sign === ',' && depth === 1) || depth === 0)
    if (!isEnd || index <= start) continue
    const member = object.slice(start, index)
    const nameEnd = endOfText(member)
    members.set(JSON.parse(member.slice(0, nameEnd)), member.slice(nameEnd + 1))
    start = index + 1
  }
  return members
}

/** Returns the position after the text that a member begins with. */
function endOfText(member: string): number {
  let end = 1
  while (member[end] !== '"') end += member[end] === '\\' ? 2 : 1
  return end + 1
}
