// Charts by uPlot, with a table of the same numbers behind each.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { S } from "./strings";

type Line = { name: string; values: number[] };

const colorOf = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Return a number that changes when the system changes between light and dark. */
function useTheme(): boolean {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return isDark;
}

/** A chart of a line over `x`. `format`: of the numbers in the table. */
export function Chart(props: {
  label: string;
  xLabel: string;
  x: number[];
  xText: (value: number) => string;
  line: Line;
  format: (value: number) => string;
  marker: number;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const isDark = useTheme();
  const { x, line, marker } = props;
  useEffect(() => {
    const element = box.current!;
    const axis = { stroke: colorOf("muted"), grid: { stroke: colorOf("line"), width: 1 }, ticks: { show: false } };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: 200,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: (_, low, high) => [low, high] },
          y: { range: [0, 1] },
        },
        axes: [
          { ...axis, values: (_, values) => values.map(props.xText) },
          { ...axis, values: (_, values) => values.map(props.format), size: 56 },
        ],
        series: [
          {},
          { stroke: colorOf("accent"), width: 2, points: { show: false }, paths: uPlot.paths.stepped!({ align: 1 }) },
        ],
        hooks: {
          draw: [
            (self) => {
              const left = self.valToPos(marker, "x", true);
              self.ctx.save();
              self.ctx.strokeStyle = colorOf("text");
              self.ctx.setLineDash([4, 4]);
              self.ctx.beginPath();
              self.ctx.moveTo(left, self.bbox.top);
              self.ctx.lineTo(left, self.bbox.top + self.bbox.height);
              self.ctx.stroke();
              self.ctx.restore();
            },
          ],
        },
      },
      [x, line.values],
      element,
    );
    const resized = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: 200 }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      chart.destroy();
    };
  }, [isDark, JSON.stringify([x, line, marker])]);
  return (
    <figure class="chart">
      <figcaption>{props.label}</figcaption>
      <div ref={box} role="img" aria-label={props.label} />
      <details>
        <summary>{S.numbers}</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label={props.label}>
          <table>
            <thead>
              <tr>
                <th scope="col">{props.xLabel}</th>
                <th scope="col">{line.name}</th>
              </tr>
            </thead>
            <tbody>
              {x.map((value, row) => (
                <tr>
                  <th scope="row">{props.xText(value)}</th>
                  <td>{props.format(line.values[row]!)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}
