/** Lets the browser save content as a file. */
export function saveBlob(content: Blob, name: string): void {
  const url = URL.createObjectURL(content)
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  // The download has started by then; a browser keeps the content until it is done.
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
