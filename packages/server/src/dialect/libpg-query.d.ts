/** The used part of libpg-query, PostgreSQL's parser as WebAssembly. */
declare module 'libpg-query/wasm/libpg-query.js' {
  export interface ParserModule {
    lengthBytesUTF8(text: string): number
    stringToUTF8(text: string, pointer: number, bytesMax: number): void
    UTF8ToString(pointer: number): string
    getValue(pointer: number, type: 'i32'): number
    _malloc(bytes: number): number
    _free(pointer: number): void
    _wasm_parse_query_raw(text: number): number
    _wasm_free_parse_result(result: number): void
  }
  export default function createParser(): Promise<ParserModule>
}
