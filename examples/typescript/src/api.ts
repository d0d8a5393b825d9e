// The client: every path, parameter, body and answer is checked by types that were made of the OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "../made/api";

export type Api = ReturnType<typeof client>;
export type Assignment = components["schemas"]["TrainAssignment"];

export function client(service: string, token: string) {
  return createClient<paths>({ baseUrl: service, headers: { Authorization: `Bearer ${token}` } });
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return what was answered, or throw what the service said: its problems have a `title` and a `detail`. */
export async function ok<T>(asked: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await asked;
  if (data === undefined) throw new Error(`${response.status} ${response.url}: ${JSON.stringify(error)}`);
  return data;
}
