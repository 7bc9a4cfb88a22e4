// Numbers and times in words.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const whole = (value) => plain.format(value);
export const missing = (value) => value === null || value === undefined || Number.isNaN(value);
export const fixed = (value, digits) => (missing(value) ? "–" : value.toFixed(digits).replace("-", "−"));
export const percent = (value) => (missing(value) ? "–" : `${(100 * value).toFixed(value > 0.995 && value < 1 ? 1 : 0)} %`);
export const kilohertz = (value) => (missing(value) ? "–" : `${value < 0 ? "−" : "+"}${(Math.abs(value) / 1e3).toFixed(2)} kHz`);
export const decibel = (value) => (missing(value) ? "–" : `${fixed(value, 1)} dB`);

export function large(value) {
  const units = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, name] of units) if (Math.abs(value) >= size) return `${(value / size).toFixed(value / size < 10 ? 2 : 1)} ${name}`;
  return whole(value);
}

export function ago(seconds) {
  if (seconds < 1.5) return "now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

const two = (value) => String(value).padStart(2, "0");
export function clock(time, milliseconds = false) {
  const at = new Date(time);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return milliseconds ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}
export function when(time) {
  const at = new Date(time);
  const today = new Date().toDateString() === at.toDateString();
  return today ? clock(time) : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(time)}`;
}
