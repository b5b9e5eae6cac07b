/** Errors of the SDK. All of them extend {@link DormouseError}. */

/** The body of an error response (RFC 9457). */
export interface ProblemBody {
  /** The code of the error, which programs compare. */
  code: string;
  /** What failed and why, as a sentence for people. */
  detail: string;
  /** What to do about it, for people. Empty if `detail` says everything. */
  next_step: string;
  /** HTTP status. */
  status: number;
}

/** Base class of all errors of the SDK. */
export class DormouseError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The daemon could not be reached, or the connection failed during a request or a stream. */
export class TransportError extends DormouseError {}

/** The response does not come from a Dormouse daemon, or cannot be parsed. */
export class UnexpectedResponseError extends DormouseError {
  /** HTTP status of the response. */
  readonly status: number;

  constructor(message: string, status: number, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

/** The daemon refused a request, or the request failed. There is a subclass for each code. */
export class ApiError extends DormouseError {
  /** The code of the error, such as `not_found`. Compare this, or the class. */
  readonly code: ErrorCode | (string & {});
  /** HTTP status. */
  readonly status: number;
  /** What to do about it, for people. Empty if the message says everything. */
  readonly nextStep: string;
  /** How long to wait before another attempt, in milliseconds, if the daemon said so. */
  readonly retryAfterMs: number | undefined;

  constructor(problem: ProblemBody, retryAfterMs?: number) {
    super(problem.detail);
    this.code = problem.code;
    this.status = problem.status;
    this.nextStep = problem.next_step;
    this.retryAfterMs = retryAfterMs;
  }
}

/** A parameter, a header or the body is invalid; the message names it. */
export class InvalidArgumentError extends ApiError {}
/** The request has no valid API key. */
export class UnauthorizedError extends ApiError {}
/** The scope of the API key does not include the request. */
export class ForbiddenError extends ApiError {}
/** The object that the request names does not exist. */
export class NotFoundError extends ApiError {}
/** The route exists, but not with this method. */
export class MethodNotAllowedError extends ApiError {}
/** The request does not fit the current state: a name is taken, or the sandbox is suspended. */
export class ConflictError extends ApiError {}
/** The sandbox is terminated, or the requested events were removed because of their age. */
export class GoneError extends ApiError {}
/** The daemon does not serve the host name of the request. */
export class WrongHostError extends ApiError {}
/** The operation was attempted and failed; nothing was lost. */
export class FailedError extends ApiError {}
/** A saved state or an image is damaged or missing. */
export class DamagedError extends ApiError {}
/** A record of the daemon cannot be read. */
export class UnreadableError extends ApiError {}
/** The database of the daemon failed; nothing was changed. */
export class StoreFailedError extends ApiError {}
/** A fault in Dormouse. */
export class InternalError extends ApiError {}
/** No program listens on the port inside the sandbox. */
export class PortClosedError extends ApiError {}
/** The program on the port closed the connection without a valid HTTP response. */
export class NoAnswerError extends ApiError {}
/** The daemon is stopping, has too many connections, or the sandbox does not respond at the moment. */
export class UnavailableError extends ApiError {}
/** The operation took longer than it may. */
export class TimedOutError extends ApiError {}
/** The host, a volume or a budget has no room. */
export class NoRoomError extends ApiError {}

/** The classes of {@link ApiError}, by code. */
export const errorClasses = {
  invalid_argument: InvalidArgumentError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  method_not_allowed: MethodNotAllowedError,
  conflict: ConflictError,
  gone: GoneError,
  wrong_host: WrongHostError,
  failed: FailedError,
  damaged: DamagedError,
  unreadable: UnreadableError,
  store_failed: StoreFailedError,
  internal: InternalError,
  port_closed: PortClosedError,
  no_answer: NoAnswerError,
  unavailable: UnavailableError,
  timed_out: TimedOutError,
  no_room: NoRoomError,
} as const;

/** The code of an {@link ApiError}. */
export type ErrorCode = keyof typeof errorClasses;

/** Creates the error for a problem that the daemon reports. A code of a later version gives an {@link ApiError}. */
export function apiError(problem: ProblemBody, retryAfterMs?: number): ApiError {
  const known = Object.hasOwn(errorClasses, problem.code) ? errorClasses[problem.code as ErrorCode] : ApiError;
  return new known(problem, retryAfterMs);
}

/** Whether a parsed body is a problem of the daemon. */
export function isProblem(body: unknown): body is ProblemBody {
  return typeof body === "object" && body !== null && "code" in body && "detail" in body && "status" in body;
}
