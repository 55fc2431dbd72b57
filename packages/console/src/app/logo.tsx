export function Logo({ size = 20 }: { size?: number }) {
  return (
    <svg className="logo" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      <path d="M5 14V2M5 9c4 0 6-2 6-6" />
    </svg>
  )
}
