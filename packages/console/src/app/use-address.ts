import { useBrowserLocation } from 'wouter/use-browser-location'
import { type AddressPlace, parseAddress } from './address.js'

/** The place that the address of the window names. It need not exist. */
export function usePlaceOfAddress(): AddressPlace {
  const [path] = useBrowserLocation()
  return parseAddress(path)
}
